//! Drivers around core: the fault simulator.
