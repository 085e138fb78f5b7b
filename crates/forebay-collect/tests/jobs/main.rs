//! Whole jobs out of made-up tables, and the logs that they give.

mod damage;
mod joined;
mod pydarshan;
mod stage;
