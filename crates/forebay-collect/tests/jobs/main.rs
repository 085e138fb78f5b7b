//! Whole jobs of made-up tables, and the logs that come of them.

mod damage;
mod joined;
mod pydarshan;
mod stage;
mod tree;
