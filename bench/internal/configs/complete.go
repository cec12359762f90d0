package configs

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// complete adds the fields to a spec that the API server requires because of other fields that are set.
func complete(s *v1.PodSpec) {
	p := &v1.Pod{Spec: *s}
	for i := range s.InitContainers { // some fields are allowed only in sidecars, so an init container with such a field becomes a sidecar
		c := &s.InitContainers[i]
		if c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil || c.Lifecycle != nil {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
	}
	mounted := map[string]bool{}
	for _, c := range containersOf(p) {
		completeContainer(s, c)
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.DownwardAPI != nil {
			completeFiles(v.DownwardAPI.Items)
		}
		if v.Projected != nil {
			for j := range v.Projected.Sources {
				if d := v.Projected.Sources[j].DownwardAPI; d != nil {
					completeFiles(d.Items)
				}
			}
		}
		if !mounted[v.Name] && v.Name != "scratch" {
			c := &s.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/volumes/" + v.Name})
		}
	}
	if s.DNSPolicy == v1.DNSNone && s.DNSConfig == nil {
		s.DNSConfig = &v1.PodDNSConfig{Nameservers: []string{"192.0.2.9"}}
	}
	if s.PriorityClassName == "system-node-critical" && s.Priority == nil {
		s.Priority = new(int32(2000001000)) // the admission plugin sets the same priority
	}
	if sc := s.SecurityContext; sc != nil {
		sc.SeccompProfile, sc.AppArmorProfile = completeSeccomp(sc.SeccompProfile), completeAppArmor(sc.AppArmorProfile)
	}
}

// completeFiles removes the FieldRef of each file that also has a ResourceFieldRef, because a file may have only one source.
func completeFiles(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].ResourceFieldRef != nil {
			items[i].FieldRef = nil
		}
	}
}

func completeContainer(s *v1.PodSpec, c *v1.Container) {
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil && probe.ProbeHandler == (v1.ProbeHandler{}) {
			probe.TCPSocket = &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}
		}
	}
	for i := range c.EnvFrom {
		if e := &c.EnvFrom[i]; e.ConfigMapRef == nil && e.SecretRef == nil {
			e.ConfigMapRef = &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}
		}
	}
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		s.OS = &v1.PodOS{Name: v1.Linux}
	}
	if c.StdinOnce {
		c.Stdin = true
	}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
			m.ReadOnly = true
		}
		if m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional {
			if c.SecurityContext == nil {
				c.SecurityContext = &v1.SecurityContext{}
			}
			c.SecurityContext.Privileged = new(true)
		}
	}
	if sc := c.SecurityContext; sc != nil {
		sc.SeccompProfile, sc.AppArmorProfile = completeSeccomp(sc.SeccompProfile), completeAppArmor(sc.AppArmorProfile)
		if sc.ProcMount != nil && *sc.ProcMount == v1.UnmaskedProcMount {
			s.HostUsers = new(false)
		}
	}
}

func completeSeccomp(p *v1.SeccompProfile) *v1.SeccompProfile {
	switch {
	case p == nil:
	case p.LocalhostProfile != nil:
		p.Type = v1.SeccompProfileTypeLocalhost
	case p.Type == v1.SeccompProfileTypeLocalhost:
		p.LocalhostProfile = new("profiles/one.json")
	}
	return p
}

func completeAppArmor(p *v1.AppArmorProfile) *v1.AppArmorProfile {
	switch {
	case p == nil:
	case p.LocalhostProfile != nil:
		p.Type = v1.AppArmorProfileTypeLocalhost
	case p.Type == v1.AppArmorProfileTypeLocalhost:
		p.LocalhostProfile = new("k8s-one")
	}
	return p
}
