//! Walks through the constructors of a data type, and builds its map.

use forebay_core::collective::{AccessError, Dimension, TypeMap};

use crate::abi::Combiner;
use crate::mpi::{Contents, Failed, Mpi};

/// Types in types in types: deeper ones are left to the MPI library.
const MAX_DEPTH: u32 = 64;

/// This layer leaves something to the MPI library: it does not understand it, or MPI has to say what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfit;

/// What is understood, or not.
type Result<T> = std::result::Result<T, Unfit>;

impl From<AccessError> for Unfit {
    fn from(_: AccessError) -> Unfit {
        Unfit
    }
}

impl From<Failed> for Unfit {
    fn from(_: Failed) -> Unfit {
        Unfit
    }
}

/// A type, taken apart.
#[derive(Debug, Clone)]
pub struct Datatype {
    /// Where its bytes lie.
    pub map: TypeMap,
    /// The distance of two elements in bytes.
    pub extent: i64,
}

/// Takes a type apart. Fails for types that this layer leaves to the MPI library.
pub fn take_apart(mpi: &Mpi, datatype: usize) -> Result<Datatype> {
    if mpi.abi.handle(datatype) == mpi.abi.datatype_null {
        return Err(Unfit);
    }
    take_apart_at(mpi, datatype, &mpi.contents(datatype)?, 0)
}

fn is_predefined(mpi: &Mpi, contents: &Contents) -> bool {
    let combiner = mpi.abi.combiner(contents.combiner);
    matches!(combiner, Some(Combiner::Named | Combiner::Fortran))
}

fn take_apart_at(mpi: &Mpi, datatype: usize, contents: &Contents, depth: u32) -> Result<Datatype> {
    if depth > MAX_DEPTH {
        return Err(Unfit);
    }
    let extent = mpi.extent(datatype)?;
    if is_predefined(mpi, contents) {
        let size = mpi.type_size(datatype)?;
        // Pairs like MPI_SHORT_INT have a gap inside. So have the markers MPI_LB and MPI_UB, which have no bytes.
        if size == 0 || size as i64 != extent {
            return Err(Unfit);
        }
        let map = TypeMap::contiguous(size);
        return Ok(Datatype { map, extent });
    }
    let inside = |&handle: &usize| {
        let inner = mpi.contents(handle);
        // Of a predefined type the contents are known.
        let is_predefined = inner.as_ref().is_ok_and(|it| is_predefined(mpi, it));
        let datatype = match inner {
            Ok(inner) => take_apart_at(mpi, handle, &inner, depth + 1),
            Err(failed) => Err(failed.into()),
        };
        if !is_predefined {
            mpi.free_type(handle);
        }
        datatype
    };
    // All of them are looked at, so that all are freed.
    let inner: Vec<Result<Datatype>> = contents.types.iter().map(inside).collect();
    let inner: Vec<Datatype> = inner.into_iter().collect::<Result<_>>()?;
    let combiner = mpi.abi.combiner(contents.combiner).ok_or(Unfit)?;
    let map = build(mpi, combiner, contents, &inner)?;
    Ok(Datatype { map, extent })
}

fn number(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| Unfit)
}

fn build(
    mpi: &Mpi,
    combiner: Combiner,
    contents: &Contents,
    inner: &[Datatype],
) -> Result<TypeMap> {
    let Contents {
        integers,
        addresses,
        ..
    } = contents;
    let integer = |at: usize| integers.get(at).copied().ok_or(Unfit);
    let address = |at: usize| addresses.get(at).copied().ok_or(Unfit);
    let Datatype {
        map: element,
        extent,
    } = inner.first().ok_or(Unfit)?;
    let extent = *extent;
    let mut map = TypeMap::default();
    match combiner {
        // MPICH 4.0 puts the data of a type with another lower bound elsewhere.
        Combiner::Resized if address(0)? != 0 => return Err(Unfit),
        Combiner::Dup | Combiner::Resized => return Ok(element.clone()),
        Combiner::Contiguous => map.place(element, 0, number(integer(0)?)?, extent)?,
        Combiner::Vector | Combiner::Hvector => {
            let stride = match combiner {
                Combiner::Vector => integer(2)?.checked_mul(extent).ok_or(Unfit)?,
                _ => address(0)?,
            };
            let block = TypeMap::repeated(element, number(integer(1)?)?, extent)?;
            map.place(&block, 0, number(integer(0)?)?, stride)?;
        }
        Combiner::Indexed
        | Combiner::Hindexed
        | Combiner::IndexedBlock
        | Combiner::HindexedBlock => {
            let blocks = number(integer(0)?)? as usize;
            for at in 0..blocks {
                let (length, place) = match combiner {
                    Combiner::Indexed => (
                        integer(1 + at)?,
                        integer(1 + blocks + at)?.checked_mul(extent),
                    ),
                    Combiner::Hindexed => (integer(1 + at)?, Some(address(at)?)),
                    Combiner::IndexedBlock => (integer(1)?, integer(2 + at)?.checked_mul(extent)),
                    _ => (integer(1)?, Some(address(at)?)),
                };
                map.place(element, place.ok_or(Unfit)?, number(length)?, extent)?;
            }
        }
        Combiner::Struct => {
            for (at, part) in inner.iter().enumerate() {
                let length = number(integer(1 + at)?)?;
                map.place(&part.map, address(at)?, length, part.extent)?;
            }
        }
        Combiner::Subarray => {
            let number_of = number(integer(0)?)? as usize;
            let c_order = integer(1 + 3 * number_of)? == i64::from(mpi.abi.order_c);
            let dimension = |at: usize| -> Result<(u64, u64, u64)> {
                let part = |which: usize| number(integer(1 + which * number_of + at)?);
                Ok((part(0)?, part(1)?, part(2)?))
            };
            let dimensions: Result<Vec<_>> =
                slowest_first(number_of, c_order).map(dimension).collect();
            return Ok(TypeMap::subarray(element, extent, &dimensions?)?);
        }
        Combiner::Darray => return darray(mpi, integers, element, extent),
        Combiner::Named | Combiner::Fortran => return Err(Unfit),
    }
    Ok(map)
}

/// The numbers of the dimensions of an array, the slowest first.
fn slowest_first(dimensions: usize, c_order: bool) -> impl Iterator<Item = usize> {
    (0..dimensions).map(move |at| if c_order { at } else { dimensions - 1 - at })
}

/// `MPI_Type_create_darray`: its integers are processes, rank, dimensions, sizes, distributions, their arguments,
/// processes in each dimension, order.
fn darray(mpi: &Mpi, integers: &[i64], element: &TypeMap, extent: i64) -> Result<TypeMap> {
    let integer = |at: usize| integers.get(at).copied().ok_or(Unfit);
    let dimensions = number(integer(2)?)? as usize;
    let part = |which: usize, at: usize| integer(3 + which * dimensions + at);
    // Ranks are dealt out in row-major order, whatever the order of the array is.
    let mut rest = number(integer(1)?)?;
    let mut coordinates = vec![0; dimensions];
    for at in (0..dimensions).rev() {
        let processes = number(part(3, at)?)?.max(1);
        coordinates[at] = rest % processes;
        rest /= processes;
    }
    let [block, cyclic, none, default] = mpi.abi.distribute.map(i64::from);
    let dimension = |at: usize| -> Result<Dimension> {
        let (elements, processes) = (number(part(0, at)?)?, number(part(3, at)?)?);
        let argument = part(2, at)?;
        let kind = part(1, at)?;
        let length = if kind == none {
            elements
        } else if argument != default {
            number(argument)?
        } else if kind == block {
            elements.div_ceil(processes.max(1))
        } else if kind == cyclic {
            1
        } else {
            return Err(Unfit);
        };
        Ok(Dimension {
            elements,
            block: length,
            processes,
            coordinate: coordinates[at],
        })
    };
    let c_order = integer(3 + 4 * dimensions)? == i64::from(mpi.abi.order_c);
    let all: Result<Vec<_>> = slowest_first(dimensions, c_order).map(dimension).collect();
    Ok(TypeMap::distributed(element, extent, &all?)?)
}
