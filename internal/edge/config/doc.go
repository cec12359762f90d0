// Package config reads a kubelet's command line and its KubeletConfiguration files into one validated value.
//
// Contract: Load reads only the files that the command line names. It keeps no state, starts nothing and logs nothing. It
// returns messages for the user (about a flag that Kubernetes has removed, or a field that has no effect here) as Notices.
// A Watch reads the files again when they have changed, and Compare says what of a new configuration can take effect at once.
// The size and the number of files are bounded.
//
// Precedence, as Kubernetes documents it: flags over drop-in files (*.conf of --config-dir, in the order of their names) over
// the file of --config over the defaults of kubelet.config.k8s.io/v1beta1. featureGates merge key by key.
//
// Invariants:
//   - After Load without error every pointer of Config.Kubelet that has a default is non-nil.
//   - Every field of KubeletConfiguration is in the table `fields`, and every gate of a kubelet in `gateUses`: honoured, meaningless
//     here, not honoured, or refused, with the reason. Notices name each setting that is not honoured and that would have an effect in
//     upstream's kubelet, by its value or by the default of Kubernetes.
//   - The error names every bad value, each with its path, its flag or its file and line, and the remedy.
//   - Every honoured field is in the table `changes`: the table says when a change of the field takes effect without a restart, or why it
//     needs one.
//
// These differences from Kubernetes are deliberate. An unknown or repeated field of the file is an error that names it; upstream's
// kubelet logs it and continues. Without --config the safe defaults of the file format apply to anonymous access, authorization and the
// read-only port; upstream's kubelet uses older, open defaults.
package config
