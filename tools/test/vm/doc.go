// Package vm tests a node on a real machine: a virtual one with systemd, cgroup v2 and the systemd cgroup driver, on which Wherry was
// installed from its Debian packages (tools/internal/vmnode).
//
// One guest serves all tests of a run, one after the other; each leaves it as a node that is Ready, without pods, and the last ones say
// so where they do not. It is ended afterwards. Under emulation a pod takes 5 to 15 s to start, so the tests have few pods and
// long bounds.
//
// The tests are skipped, saying why, without root or without WHERRY_VM.
//
//	WHERRY_VM        1: run them; `make test-vm` sets it, and builds first what they need
//	WHERRY_VM_KEEP   keep the guest at the end; the next run goes on with it. `make vm-down` ends it
//	WHERRY_VM_ACCEL  kvm or tcg
package vm
