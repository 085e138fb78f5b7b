//! What every preload library of this project needs: a macro that hooks a
//! function of libc, access to the next definition in the chain of libraries,
//! and the pure rules by which a hook decides (is this path in the buffer, what
//! does this `fopen` mode mean, what does this `#!` line mean).
//!
//! The crate uses no std, no allocation and no thread-local storage: a hook may
//! run before libc has finished its own start, in a signal handler, or in a child
//! of `vfork`.
//!
//! | module | what it does |
//! |---|---|
//! | [`hooks!`], [`Real`] | a hook of a libc function, and the next definition of that function |
//! | [`preload_library!`] | what linker and compiler require of a preload library |
//! | [`exec_list_function!`] | a hook of a function of libc with a list of arguments |
//! | [`foreign`] | hooks of functions in libraries that come with the program |
//! | [`MpiFunction`] | the two names of an MPI function |
//! | [`mpi_abi`] | handles and constants of the MPI libraries |
//! | [`kernel`], [`thread`] | system calls, and the calling thread |
//! | [`fork`] | state that a child must not inherit |
//! | [`program`] | a program that is about to be started |
//! | [`bypass`], [`environment`], [`path`], [`shebang`], [`stdio_mode`] | pure rules |
//!
//! ```
//! use core::ffi::c_int;
//! forebay_hook::hooks! {
//!     /// Counts nothing, passes on.
//!     fn sched_yield [real] () -> c_int {
//!         real()
//!     }
//! }
//! // SAFETY: takes no arguments, touches no memory.
//! assert_eq!(unsafe { sched_yield() }, 0);
//! ```
#![no_std]
#![allow(unsafe_code)]

pub mod bypass;
mod elf;
pub mod environment;
mod exec_list;
pub mod foreign;
pub mod fork;
mod frame;
pub mod kernel;
pub mod mpi_abi;
mod mpi_function;
pub mod path;
pub mod program;
pub mod shebang;
pub mod stdio_mode;
mod symbol;
pub mod thread;

pub use mpi_function::{Behind, MpiFunction};
pub use symbol::{FD_NAME, FdName, Offered, Real};

/// Defines hooks of libc functions.
///
/// `fn a | b [real] (arg: Type, ...) -> Ret { body }` exports `a` and `b` with
/// the C calling convention. In the body, `real` is the next definition of the
/// same name in the chain of libraries (libc's, or that of another preload
/// library). The macro also defines a type of the same name for other modules:
/// `hook()` is the body of our hook, `real()` the next definition.
///
/// A function that is variadic in C is declared with all arguments it can have:
/// x86-64 and AArch64 Linux pass variadic and fixed arguments alike.
#[macro_export]
macro_rules! hooks {
    ($( $(#[$meta:meta])* fn $($name:ident)|+ [$real:ident] $args:tt -> $ret:ty $body:block )*) => {
        $( $( $crate::hooks! { @one $name $real $args $ret, $body } )+ )*
    };
    (@one $name:ident $real:ident ( $($arg:ident : $ty:ty),* $(,)? ) $ret:ty, $body:block) => {
        #[doc = concat!("`", stringify!($name), "` of libc, defined anew.")]
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller keeps to the contract of the libc function of this name.
            unsafe { $name::hook($($arg),*) }
        }

        #[doc = concat!("The hook of `", stringify!($name), "`, and the next definition.")]
        #[allow(non_camel_case_types)]
        pub enum $name {}

        impl $name {
            /// The body of our hook. A call of the symbol may reach another library that is loaded before this one.
            ///
            /// # Safety
            /// The contract of the libc function of this name.
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn hook($($arg: $ty),*) -> $ret {
                #[allow(unused_variables)]
                let $real = $name::real();
                // SAFETY: the caller's promise.
                #[allow(unused_unsafe, unused_braces)]
                unsafe { $body }
            }

            /// The next definition in the chain of libraries.
            #[inline(always)]
            #[allow(clippy::type_complexity)]
            pub fn real() -> unsafe extern "C" fn($($ty),*) -> $ret {
                static REAL: $crate::Real = $crate::Real::new(
                    match ::core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a Rust identifier holds no NUL"),
                    },
                );
                // SAFETY: libc's symbol of this name has the type that the hook declares.
                unsafe { ::core::mem::transmute::<*mut ::core::ffi::c_void, unsafe extern "C" fn($($ty),*) -> $ret>(REAL.get()) }
            }
        }
    };
}
