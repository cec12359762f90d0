// Package userns gives pods ranges of the host's user and group IDs, which "hostUsers: false" needs.
//
// Contract: a range belongs to one pod from Range to Release. No two ranges overlap, and none includes an ID below the first ID
// for pods, so none includes the host's own users. A range is on disk (fsync) before Range returns it, in the file and format
// of upstream's kubelet: <root>/pods/<uid>/userns. After a restart of the agent, Load reads these files. While one of them
// cannot be read, Range gives no new range, because the new range might overlap the range in that file.
//
// All methods may be called concurrently. They read and write small files.
package userns
