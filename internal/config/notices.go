package config

// flagNotices speaks of the flags that are not fields and have no effect here, or are to be removed.
func (f *flagSet) flagNotices() []Notice {
	var notices []Notice
	no := func(flag, why string) {
		if f.Changed(flag) && f.Lookup(flag).Value.String() != f.Lookup(flag).DefValue {
			notices = append(notices, Notice{NoticeNotHonoured, "--" + flag, "no effect: " + why})
		}
	}
	no("lock-file", "let systemd see to it that one agent runs")
	no("exit-on-lock-contention", "let systemd see to it that one agent runs")
	no("experimental-mounter-path", "the kernel is asked directly: remove the flag")
	no("image-credential-provider-config", "credential provider plugins are not run yet: use imagePullSecrets")
	no("image-credential-provider-bin-dir", "credential provider plugins are not run yet: use imagePullSecrets")
	no("runtime-cgroups", "statistics of the runtime's own cgroup are not kept")
	for _, flag := range []string{"minimum-container-ttl-duration", "maximum-dead-containers-per-container", "maximum-dead-containers"} {
		if f.Changed(flag) {
			notices = append(notices, Notice{NoticeDeprecated, "--" + flag, "Kubernetes will remove it: ended containers go when disk runs short (evictionHard)"})
		}
	}
	return notices
}

// valueNotices speaks of combinations that work and may surprise.
func valueNotices(c Config) []Notice {
	var notices []Notice
	kc := &c.Kubelet
	if kc.ReadOnlyPort != 0 {
		notices = append(notices, Notice{NoticeDeprecated, "readOnlyPort (--read-only-port)", "anybody who reaches the port reads pods and statistics: use the port with authentication and set 0"})
	}
	if *kc.Authentication.Anonymous.Enabled && string(kc.Authorization.Mode) == "AlwaysAllow" {
		notices = append(notices, Notice{NoticeChanged, "authorization.mode (--authorization-mode)", "anonymous requests may do everything on this node: set Webhook, or authentication.anonymous.enabled: false"})
	}
	return notices
}
