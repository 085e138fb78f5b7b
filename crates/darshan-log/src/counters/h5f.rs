//! Counters of the module H5F: HDF5 calls on one file.

counters! {
    H5f,
    ints: 3 [
        Opens "H5F_OPENS" Sum,
        Flushes "H5F_FLUSHES" Sum,
        UseMpiio "H5F_USE_MPIIO" Max,
    ],
    floats: 5 [
        OpenStartTimestamp "H5F_F_OPEN_START_TIMESTAMP" Min,
        CloseStartTimestamp "H5F_F_CLOSE_START_TIMESTAMP" Min,
        OpenEndTimestamp "H5F_F_OPEN_END_TIMESTAMP" Max,
        CloseEndTimestamp "H5F_F_CLOSE_END_TIMESTAMP" Max,
        MetaTime "H5F_F_META_TIME" Sum,
    ],
}
