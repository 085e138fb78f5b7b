//! Pure policy of Forebay: namespace, bridge, modes, placement, drain. No sockets, files, threads or clocks.
