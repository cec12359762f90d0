// Package vm tests a node on a virtual machine with systemd, cgroup v2 and the systemd cgroup driver, on which Wherry was
// installed from its Debian packages (tools/internal/vmnode).
//
// All tests of a run use one guest, one after another. Each test leaves the guest as a Ready node without pods; some of the last tests do
// not, and say so. After the tests the guest is ended. Under emulation a pod takes 5 to 15 s to start, so the tests have few pods and long
// time limits.
//
// Without root, or without WHERRY_VM, the tests are skipped with a message. These are the environment variables:
//
//	WHERRY_VM        1: run them; `make test-vm` sets it, after it has built what they need
//	WHERRY_VM_KEEP   keep the guest at the end; the next run uses it again. `make vm-down` ends it
//	WHERRY_VM_ACCEL  kvm or tcg
package vm
