#!/bin/sh
# Stands in for `forebay`, without a buffer: programs work on the PFS itself. STAND_IN says what is wrong with it.
set -eu
verb=$1
shift
storage=
while [ $# -gt 0 ]; do
    case $1 in
        --storage) storage=$2; shift 2 ;;
        --buffer) buffer=$2; shift 2 ;;
        --) shift; break ;;
        *) shift ;;
    esac
done
instance=$storage/instance
keep() {
    mkdir -p "$instance/obj"
    echo "what nobody has drained" >"$instance/obj/$1"
    setfattr -n user.forebay.label -v x "$instance/obj/$1"
}
case $verb in
    run)
        [ -e "$instance/root" ] || { mkdir -p "$instance"; echo root >"$instance/root"; sync; }
        "$@"
        # The end of a run is a point from which nothing is lost.
        sync
        ;;
    drain)
        [ -e "$instance/root" ] || exit 1
        case $STAND_IN in
            honest) ;;
            silent) keep 00ab ;;
            names) keep 00ab; echo "left: obj/00ab"; exit 75 ;;
            refers) keep 00ab; echo "see: forebay fsck"; exit 75 ;;
            mute) keep 00ab; echo "something is left"; exit 75 ;;
            # Withholds, and has lost what was synced.
            excuse) rm -f "$buffer"/f*; keep 00ab; echo "left: obj/00ab"; exit 75 ;;
            # Says that all is on the PFS before it is.
            early) date +%N >"$buffer/f0" ;;
            grows) echo more >>"$buffer/f0" ;;
        esac
        ;;
    fsck)
        case $STAND_IN in
            complains) echo "  f0: wrong"; exit 1 ;;
            refers) echo "instance: 1 problem"; echo "  quarantine: obj/00ab"; exit 1 ;;
            mute) echo "quarantine: obj/00ab" ;;
        esac
        ;;
esac
