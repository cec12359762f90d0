// Package debian provides what the development environment needs from Debian: it installs missing packages (as root, with apt-get), and it
// extracts containerd and runc from their packages without installing them.
package debian
