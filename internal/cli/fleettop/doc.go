// Package fleettop is the command `wherry fleet top`: a live view of a fleet on a whole terminal.
//
// Contract: Draw and History are pure: they have no clock, no IO and no goroutine. Whatever names a fleet has, the lines that Draw returns fit
// the size, and what the terminal gets of them has no control characters (package screen). Top.Run gives the terminal back in every way of
// ending. Where standard output is no terminal, it prints the state as text.
package fleettop
