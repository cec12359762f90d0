// Package config turns a kubelet's command line and its KubeletConfiguration files into one checked value.
//
// Contract: Load reads the files that the command line names and nothing else; it keeps no state, starts nothing and
// logs nothing. What a user ought to be told once at start (a flag that Kubernetes has removed, a field that is known
// but has no effect here) comes back as Notices.
//
// Precedence, as Kubernetes documents it: flags over drop-in files (*.conf of --config-dir, in the order of their
// names) over the file of --config over the defaults of kubelet.config.k8s.io/v1beta1. featureGates merge key by key.
//
// Invariants:
//   - After Load without error every pointer of Config.Kubelet that has a default is non-nil.
//   - Every field of KubeletConfiguration is in the table `fields`, and every gate of a kubelet in `gateUses`: honoured,
//     without meaning here, not honoured, or refused, with the reason. What is not honoured and would act, by the value that is
//     set or by Kubernetes' default, is in the Notices.
//   - Every bad value is reported, not only the first, each with its path, its flag and the way out.
//
// Where this differs from Kubernetes on purpose: an unknown or repeated field of the file is an error that names it (the
// kubelet logs it and goes on); and without --config the safe defaults of the file format hold for anonymous access,
// authorization and the read-only port (the kubelet falls back to older, open ones).
package config
