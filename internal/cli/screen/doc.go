// Package screen shows lines of styled text on a whole terminal, and reads keys.
//
// Contract: Show takes the terminal over (alternate screen, no echo, no cursor) and gives it back in every way of ending: when the work
// returns, when its context ends, after a signal, after a panic of the work, and while the user suspends the program. Whatever the lines
// contain, the terminal gets no control character but those of this package, no line that is wider than the terminal, and no more lines than it
// has. Mode is a pure value; its methods may be called concurrently.
package screen
