//! The metadata store of a bridge behind a trait: RocksDB, and in memory for tests and models.
