// Package nodelog answers node log queries: GET /logs/?query=kubelet&tailLines=100, in the form of Kubernetes' kubelet (KEP-2258),
// which kubectl uses.
//
// A query names services or one file. Messages of a service come from the system's journal, by journalctl, if the journal has messages
// of the service's unit, and otherwise from the first file of SERVICE, SERVICE.log and SERVICE/SERVICE.log below the log directory.
//
// Contract: Parse is pure and bounds every value. Log runs journalctl without a shell, for at most 30 s, and at most a few times at
// once. It passes each value in one argument of the form --option=value, so that no value becomes another option. It does not trust
// the files: a link cannot lead it out of the log directory, and a pipe or a device cannot block it. The client reads at its own
// speed; nothing is collected in memory.
package nodelog
