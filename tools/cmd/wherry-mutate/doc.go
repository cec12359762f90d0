// Command wherry-mutate shows which faults the tests of a package would miss. A mutant is the package's code with one small change in one
// place. The command runs the tests for each mutant, and lists the mutants with which all tests pass (the survivors).
//
// All mutants are compiled into one test binary, and an environment variable with a number selects one. So each mutant costs a run of the
// tests but no compilation. The command does not change the checkout: the changed files reach the compiler through the flag -overlay of the
// go command.
//
//	wherry-mutate -dir .. -pkg ./internal/core/decide -known internal/core/decide/testdata/mutants.txt
//
// The name of a mutant has the file, the function, the change, and a number if a function has several equal changes. So the names stay the
// same when other functions are edited. The file of -known has a reason for each known survivor ("NAME: reason"). The command ends with
// status 1 if a survivor is not in this file, or if a mutant in this file is not a survivor.
//
// # What is changed
//
//	if, case     a condition is always true, always false
//	&&, ||       one side is left out
//	!x           x
//	< <= > >=    the boundary moves by one; == and != are swapped
//	1, 2, 10     a number is one more, a time.Duration a second more
//	+ - *        a - b, a + b, a + b
//	min, max     the other one
//	return       zero in place of each result
//	T{k: v}      zero in place of v
//	a table      each constant in an entry of a package variable: another value of its enumeration, or zero
//	x = y, f(),  the statement is left out (also x++, return in mid-function, continue, break)
//	x += y
package main
