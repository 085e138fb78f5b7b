//! The modules of a log: numbers, names, and where their records lie.

use std::fmt;

/// Number of modules a 3.41 log has room for.
pub const MAX_MODULES: usize = 64;

macro_rules! module_ids {
    ($( $id:ident = $number:literal $name:literal, )*) => {
        /// A module of a log, numbered as in format 3.41.
        ///
        /// ```
        /// use darshan_log::ModuleId;
        /// assert_eq!(ModuleId::from_number(2).name(), "MPI-IO");
        /// assert_eq!(ModuleId::from_number(40).name(), "unknown");
        /// assert_eq!(ModuleId::from_name("POSIX"), Some(ModuleId::Posix));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ModuleId {
            $(
                #[doc = concat!("Number ", $number, ", `", $name, "`.")]
                $id,
            )*
            /// A number that no release of Darshan uses.
            Unknown(u8),
        }

        impl ModuleId {
            /// All modules that have a name, by number.
            pub const NAMED: &[ModuleId] = &[ $( ModuleId::$id, )* ];

            /// The module with that number in format 3.41.
            pub const fn from_number(number: u8) -> ModuleId {
                match number {
                    $( $number => ModuleId::$id, )*
                    other => ModuleId::Unknown(other),
                }
            }

            /// The number in format 3.41, less than [`MAX_MODULES`].
            pub const fn number(self) -> u8 {
                match self {
                    $( ModuleId::$id => $number, )*
                    ModuleId::Unknown(number) => number,
                }
            }

            /// The name as Darshan's tools print it, or `unknown`.
            pub const fn name(self) -> &'static str {
                match self {
                    $( ModuleId::$id => $name, )*
                    ModuleId::Unknown(_) => "unknown",
                }
            }
        }
    };
}

module_ids! {
    Null = 0 "NULL",
    Posix = 1 "POSIX",
    MpiIo = 2 "MPI-IO",
    H5f = 3 "H5F",
    H5d = 4 "H5D",
    PnetcdfFile = 5 "PNETCDF_FILE",
    PnetcdfVar = 6 "PNETCDF_VAR",
    Bgq = 7 "BG/Q",
    Lustre = 8 "LUSTRE",
    Stdio = 9 "STDIO",
    DxtPosix = 10 "DXT_POSIX",
    DxtMpiio = 11 "DXT_MPIIO",
    Mdhim = 12 "MDHIM",
    Apxc = 13 "APXC",
    Apmpi = 14 "APMPI",
    Heatmap = 15 "HEATMAP",
    Dfs = 16 "DFS",
    Daos = 17 "DAOS",
}

impl ModuleId {
    /// The module of that name.
    pub fn from_name(name: &str) -> Option<ModuleId> {
        ModuleId::NAMED.iter().copied().find(|id| id.name() == name)
    }
}

impl fmt::Display for ModuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleId::Unknown(number) => write!(f, "module {number}"),
            named => f.write_str(named.name()),
        }
    }
}

/// A stretch of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes, as stored (compressed).
    pub len: u64,
}

impl Extent {
    /// The byte behind the last one. It saturates, because a damaged log may say anything.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// One module that a log has data of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Which module.
    pub id: ModuleId,
    /// Version of its records in this log.
    pub version: u32,
    /// The recorder ran out of memory for this module: records are missing.
    pub partial: bool,
    /// Where its records lie.
    pub extent: Extent,
}

impl ModuleInfo {
    /// True if this crate decodes the module's records. Other modules are skipped;
    /// [`Log::raw_module`](crate::Log::raw_module) gives their bytes.
    pub fn is_decoded(&self) -> bool {
        newest_version(self.id).is_some_and(|newest| (1..=newest).contains(&self.version))
    }
}

/// The newest record version that this crate reads, if it reads the module at all.
pub const fn newest_version(id: ModuleId) -> Option<u32> {
    match id {
        ModuleId::Posix => Some(4),
        ModuleId::MpiIo | ModuleId::H5f | ModuleId::PnetcdfFile | ModuleId::DxtMpiio => Some(3),
        ModuleId::H5d | ModuleId::Bgq | ModuleId::Lustre | ModuleId::Stdio | ModuleId::DxtPosix => {
            Some(2)
        }
        ModuleId::PnetcdfVar | ModuleId::Heatmap | ModuleId::Dfs | ModuleId::Daos => Some(1),
        ModuleId::Null
        | ModuleId::Mdhim
        | ModuleId::Apxc
        | ModuleId::Apmpi
        | ModuleId::Unknown(_) => None,
    }
}
