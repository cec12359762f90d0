module github.com/wherry-node/wherry/tools

go 1.26.0

toolchain go1.26.8

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	github.com/spf13/cobra v1.10.2
	golang.org/x/sync v0.19.0
	golang.org/x/sys v0.40.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
)
