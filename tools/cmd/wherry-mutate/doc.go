// Command wherry-mutate asks of the tests of one package what they would notice: it changes one thing in one place of the
// package's code (a mutant), runs the package's tests, and lists the mutants that no test told from the original.
//
// All mutants are compiled into one test binary, behind a number in the environment: a mutant costs a run of the tests and
// no compilation. Nothing in the tree is written: the changed files reach the compiler by go's -overlay.
//
//	wherry-mutate -dir .. -pkg ./internal/core/decide -known internal/core/decide/testdata/mutants.txt
//
// A mutant is named by file, function, what was changed and which one of its kind it is in that function, so that names
// outlive edits elsewhere. The file of known survivors gives each a reason ("NAME: reason"); a survivor that is not in it,
// and a name in it that is not a survivor, end the command with status 1.
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
//	return       nought in place of each result
//	T{k: v}      nought in place of v
//	x = y, f(),  the statement is left out (also x++, return in mid-function, continue, break)
//	x += y
package main
