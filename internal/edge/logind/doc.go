// Package logind asks systemd-logind to delay the machine's shutdown, and receives a signal when a shutdown begins or is
// cancelled.
//
// Contract: a Bus is one connection. When it breaks, Shutdowns ends, and a new Bus has to be opened. Only signals from the connection
// that has logind's name count, because every local process can send similar ones. Several signals that nobody has received yet become
// one. Methods may be called concurrently. The context of a call bounds how long it waits for logind. While a file that Inhibit returned
// is open, logind delays a shutdown for at most MaxDelay.
//
// Source: https://www.freedesktop.org/wiki/Software/systemd/inhibit/, org.freedesktop.login1(5), logind.conf(5)
package logind
