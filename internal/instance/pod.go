// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"slices"
	"strings"
)

// Pod is the pod of Kubernetes whose containers use the stack of an instance.
type Pod struct {
	Namespace string `json:"namespace"`     // namespace of the pod
	Name      string `json:"name"`          // name of the pod
	UID       string `json:"uid,omitempty"` // identifier that Kubernetes gave to the pod
}

// String returns NAMESPACE/POD, which selects the instance. No name of an instance
// contains a slash.
func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// Flag returns the value that ParsePod parses, with the UID.
func (p *Pod) Flag() string { return strings.TrimSuffix(p.String()+"/"+p.UID, "/") }

// maxPodWord is the maximum length of a name in Kubernetes (DNS subdomain, RFC 1123).
const maxPodWord = 253

// ParsePod parses NAMESPACE/POD or NAMESPACE/POD/UID.
func ParsePod(text string) (*Pod, error) {
	words := strings.Split(text, "/")
	if len(words) < 2 || len(words) > 3 {
		return nil, fmt.Errorf("pod %q: expected NAMESPACE/POD", text)
	}
	for _, w := range words {
		ok := w != "" && len(w) <= maxPodWord
		for i, c := range []byte(w) {
			letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			ok = ok && (letter || i > 0 && (c == '-' || c == '.' || c == '_'))
		}
		if !ok {
			return nil, fmt.Errorf("pod %q: expected NAMESPACE/POD, of letters, digits, '-' and '.'", text)
		}
	}
	p := &Pod{Namespace: words[0], Name: words[1]}
	if len(words) == 3 {
		p.UID = words[2]
	}
	return p, nil
}

// NamesPod reports whether a name that selects an instance is that of a pod.
func NamesPod(name string) bool { return strings.Contains(name, "/") }

// CheckSelector returns an error if name can be neither the name of an instance nor
// NAMESPACE/POD.
func CheckSelector(name string) error {
	if !NamesPod(name) {
		return CheckName(name)
	}
	p, err := ParsePod(name)
	if err == nil && p.UID != "" {
		err = fmt.Errorf("pod %q: expected NAMESPACE/POD", name)
	}
	return err
}

// Is reports whether name selects the instance: its own name, or that of its pod.
func (s *State) Is(name string) bool {
	return s.Name == name || s.Pod != nil && s.Pod.String() == name
}

// newest returns the instance that name selects, or nil. If a pod has several, because
// its sandbox was replaced, this is the one that started last.
func newest(all []Info, name string) (found *Info) {
	for i := range all {
		if all[i].Is(name) && (found == nil || all[i].Started.After(found.Started)) {
			found = &all[i]
		}
	}
	return found
}

// noPod returns the error for a pod without a stack.
func noPod(name, where string, running []Info) error {
	var pods []string
	for i := range running {
		if running[i].Pod != nil {
			pods = append(pods, running[i].Pod.String())
		}
	}
	if len(pods) == 0 {
		return fmt.Errorf("pod %s has no running stack (looked %s), and neither has any other pod", name, where)
	}
	return fmt.Errorf("pod %s has no running stack (looked %s); pods with a stack: %s", name, where, strings.Join(slices.Compact(slices.Sorted(slices.Values(pods))), ", "))
}
