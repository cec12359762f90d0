// Package debian provides the Debian packages of the development environment. It installs missing packages (as root, with
// apt-get), and it extracts containerd and runc from their packages without installing them.
package debian
