// Package build builds everything that the development environment runs, into bin/: the project's own programs, and pinned
// programs of others from Go modules. The go command decides what is up to date.
package build
