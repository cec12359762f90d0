// Package due keeps items in the order of their times. With it, an owner of many timed items needs one heap and one
// timer, and no goroutine for each item.
//
// A Heap has no lock, no clock and no timer: its caller has them. Adding, moving and removing cost the logarithm of its
// size. Items of the same time come out in the order in which they were put.
package due
