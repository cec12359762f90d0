// Package debian gets what the development environment needs from Debian: packages that are missing are installed (as
// root, by apt-get), and containerd and runc are extracted from their packages without being installed.
package debian
