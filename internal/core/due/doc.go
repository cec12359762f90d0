// Package due keeps things in the order of their times: whoever has many things to do at many times needs one heap, one timer and
// no goroutine for each.
//
// A Heap has no lock, no clock and no timer: its caller has them. Adding, moving and taking out cost the logarithm of its size.
// Things of the same time come out in the order in which they were put.
package due
