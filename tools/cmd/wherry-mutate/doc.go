// Command wherry-mutate shows what the tests of one package would notice. It changes one thing in one place of the package's
// code (a mutant), runs the package's tests, and lists the mutants with which all tests pass.
//
// All mutants are compiled into one test binary and selected by a number in the environment. So a mutant costs a run of the
// tests, but no compilation. The command does not write to the tree: the changed files reach the compiler by go's -overlay.
//
//	wherry-mutate -dir .. -pkg ./internal/core/decide -known internal/core/decide/testdata/mutants.txt
//
// The name of a mutant has the file, the function, the change, and its number among equal changes in that function. So names
// stay valid after edits in other functions. The file of known survivors gives a reason for each ("NAME: reason"). The command
// ends with status 1 if a survivor is missing in the file, or if a name in the file is not a survivor.
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
