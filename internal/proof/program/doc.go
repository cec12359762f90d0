// Package program writes programs and scripts that a test runs. The product does not import it.
package program
