// Package script runs tests that are text files: commands, each followed by the output that it must have. The product does not import it.
//
// Contract: a command begins at the start of a line. Its expected output follows in indented lines. A line that begins with # is a comment.
// If update is true, Run and Golden write the actual output into the file and compare nothing.
package script
