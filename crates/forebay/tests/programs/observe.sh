# Sourced by the test harness: prints a tree as a program inside the buffer sees it.
# Times are shown only when they are old, for a young one differs between two runs;
# CHANGING is an extended regular expression of files whose contents no two runs agree on;
# of a directory neither size nor link count, for file systems count there as they like.
observe() {
    find "${1:-.}" -mindepth 1 \
        \( -type d -printf '%y %m %U %G %P\n' \) \
        -o \( -type l -printf '%y %U %G %n %P -> %l\n' \) \
        -o -printf '%y %m %U %G %n %s %P\n' | LC_ALL=C sort
    find "${1:-.}" -mindepth 1 ! -newermt 2020-01-01 -printf '%T+ %P\n' | LC_ALL=C sort
    find "${1:-.}" -type f -print0 | grep -zvE "${CHANGING:-/$}" | LC_ALL=C sort -z | xargs -0 -r md5sum
}
export -f observe
