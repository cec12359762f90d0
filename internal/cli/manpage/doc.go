// Package manpage writes the manual pages of a program from its commands: one page for each command that people see.
//
// Contract: Of is a function of the commands alone. It writes no date, so that two builds of one commit have equal pages.
package manpage
