// Package roundstest has a test that each loop has to pass which a watchdog watches (rounds.Rounds.Turns). The tests of these loops call it.
// The product does not import it.
package roundstest
