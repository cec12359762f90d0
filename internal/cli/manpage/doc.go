// Package manpage writes the manual pages of a program from its commands: one page for each visible command.
//
// Contract: the result of Of depends only on the commands. It contains no date, so that two builds of one commit have equal
// pages.
package manpage
