//! Counters of the module PNETCDF_FILE: PnetCDF calls on one file.

counters! {
    PnetcdfFile,
    ints: 9 [
        Creates "PNETCDF_FILE_CREATES" Sum,
        Opens "PNETCDF_FILE_OPENS" Sum,
        Redefs "PNETCDF_FILE_REDEFS" Sum,
        IndepWaits "PNETCDF_FILE_INDEP_WAITS" Sum,
        CollWaits "PNETCDF_FILE_COLL_WAITS" Sum,
        Syncs "PNETCDF_FILE_SYNCS" Sum,
        BytesRead "PNETCDF_FILE_BYTES_READ" Sum,
        BytesWritten "PNETCDF_FILE_BYTES_WRITTEN" Sum,
        WaitFailures "PNETCDF_FILE_WAIT_FAILURES" Sum,
    ],
    floats: 8 [
        OpenStartTimestamp "PNETCDF_FILE_F_OPEN_START_TIMESTAMP" Min,
        CloseStartTimestamp "PNETCDF_FILE_F_CLOSE_START_TIMESTAMP" Min,
        WaitStartTimestamp "PNETCDF_FILE_F_WAIT_START_TIMESTAMP" Min,
        OpenEndTimestamp "PNETCDF_FILE_F_OPEN_END_TIMESTAMP" Max,
        CloseEndTimestamp "PNETCDF_FILE_F_CLOSE_END_TIMESTAMP" Max,
        WaitEndTimestamp "PNETCDF_FILE_F_WAIT_END_TIMESTAMP" Max,
        MetaTime "PNETCDF_FILE_F_META_TIME" Sum,
        WaitTime "PNETCDF_FILE_F_WAIT_TIME" Sum,
    ],
}
