// Package pulsetest has a test that every loop which package pulse watches has to pass. The tests of these loops call it. The product does
// not import it.
package pulsetest
