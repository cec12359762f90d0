// Package due keeps items in the order of the times at which they are due. Code that has many such items needs one Heap and one
// timer, and no goroutine for each item.
//
// A Heap has no lock, no clock and no timer: its caller has them. Adding, moving or removing an item takes logarithmic
// time. Items of the same time come out in the order in which they were put.
package due
