//! Counters of the module BG/Q: Blue Gene/Q facts of a job.

counters! {
    Bgq,
    ints: 11 [
        Csjobid "BGQ_CSJOBID" Keep,
        Nnodes "BGQ_NNODES" Keep,
        Rankspernode "BGQ_RANKSPERNODE" Keep,
        Ddrpernode "BGQ_DDRPERNODE" Keep,
        Inodes "BGQ_INODES" Keep,
        Anodes "BGQ_ANODES" Keep,
        Bnodes "BGQ_BNODES" Keep,
        Cnodes "BGQ_CNODES" Keep,
        Dnodes "BGQ_DNODES" Keep,
        Enodes "BGQ_ENODES" Keep,
        Torusenabled "BGQ_TORUSENABLED" Keep,
    ],
    floats: 1 [
        Timestamp "BGQ_F_TIMESTAMP" Keep,
    ],
}
