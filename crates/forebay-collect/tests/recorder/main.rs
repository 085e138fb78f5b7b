//! The recorder under real programs: what it counts, what survives, what it leaves alone.
//!
//! | variable | meaning |
//! |---|---|
//! | `FOREBAY_RECORDER` | the library instead of `release/libforebay_record.so` in the target directory |
//! | `FOREBAY_PRELOAD` | the buffer's library instead of the one beside it |

mod ends;
mod foreign;
mod hostile;
mod many_calls;
mod run;
mod truth;
