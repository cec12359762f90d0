// Package pulsetest has the contract of a loop that package pulse watches. The tests of such loops call it. The product does not import
// it.
package pulsetest
