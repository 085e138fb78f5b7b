//! Names, order and rules of the counters of every module with records of a fixed size.
//!
//! Each submodule has two enums, `Counter` and `FCounter`. Their discriminants are the places in
//! [`Record::counters`](crate::Record) and [`Record::fcounters`](crate::Record). `COUNTERS` and
//! `FCOUNTERS` hold the names in the same order.
//!
//! ```
//! use darshan_log::counters::posix::{self, Counter};
//! assert_eq!(posix::COUNTERS[Counter::BytesRead as usize], "POSIX_BYTES_READ");
//! assert_eq!(Counter::BytesRead.name(), "POSIX_BYTES_READ");
//! assert_eq!(posix::FCOUNTERS.len(), 17);
//! ```

pub(crate) mod layout;

pub use layout::{Common, Extremes, FloatRule, Layout, Rule, Times};

/// What all `Counter` and `FCounter` enums have in common.
pub trait CounterName: Copy {
    /// The name as Darshan's tools print it, such as `POSIX_BYTES_READ`.
    fn name(self) -> &'static str;
    /// The place in the record's array.
    fn index(self) -> usize;
}

/// Declares a module's marker type, its two enums, its names and its rules of reduction.
macro_rules! counters {
    (
        $marker:ident,
        ints: $ints:literal [ $( $int:ident $int_name:literal $int_rule:ident, )* ],
        floats: $floats:literal [ $( $float:ident $float_name:literal $float_rule:ident, )* ],
    ) => {
        use super::{CounterName, FloatRule, Rule};

        /// Names of the integer counters, in the order of the record.
        pub const COUNTERS: [&str; $ints] = [ $( $int_name, )* ];
        /// Names of the floating point counters, in the order of the record.
        pub const FCOUNTERS: [&str; $floats] = [ $( $float_name, )* ];

        pub(crate) const RULES: [Rule; $ints] = [ $( Rule::$int_rule, )* ];
        pub(crate) const FLOAT_RULES: [FloatRule; $floats] = [ $( FloatRule::$float_rule, )* ];
        pub(crate) type Ints = [i64; $ints];
        pub(crate) type Floats = [f64; $floats];

        /// Integer counters; the discriminant is the place in the record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Counter {
            $(
                #[doc = concat!("`", $int_name, "`; in a reduction: `Rule::", stringify!($int_rule), "`.")]
                $int,
            )*
        }

        impl CounterName for Counter {
            fn name(self) -> &'static str {
                COUNTERS[self as usize]
            }
            fn index(self) -> usize {
                self as usize
            }
        }

        impl Counter {
            /// The name as Darshan's tools print it.
            pub const fn name(self) -> &'static str {
                COUNTERS[self as usize]
            }
        }

        /// Floating point counters, in seconds unless their name says otherwise; the discriminant
        /// is the place in the record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FCounter {
            $(
                #[doc = concat!("`", $float_name, "`; in a reduction: `FloatRule::", stringify!($float_rule), "`.")]
                $float,
            )*
        }

        impl CounterName for FCounter {
            fn name(self) -> &'static str {
                FCOUNTERS[self as usize]
            }
            fn index(self) -> usize {
                self as usize
            }
        }

        impl FCounter {
            /// The name as Darshan's tools print it.
            pub const fn name(self) -> &'static str {
                FCOUNTERS[self as usize]
            }
        }

        impl crate::record::Typed for crate::$marker {
            type Counter = Counter;
            type FCounter = FCounter;
        }
    };
}

pub mod bgq;
pub mod daos;
pub mod dfs;
pub mod h5d;
pub mod h5f;
pub mod mpiio;
pub mod pnetcdf_file;
pub mod pnetcdf_var;
pub mod posix;
pub mod stdio;
