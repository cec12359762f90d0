// Package build makes everything that the development environment runs: the project's own programs, and the pinned
// programs of others, from Go modules into bin/. The go command decides what is up to date.
package build
