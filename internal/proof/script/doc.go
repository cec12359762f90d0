// Package script runs tests that are written as text files: commands, each with the output that it must have. The product does not
// import it.
//
// Contract: a command starts at the beginning of a line, and its output follows it, indented. A line that begins with # is a comment.
// With update, Run and Golden write what they got into the file instead of comparing it.
package script
