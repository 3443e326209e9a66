// SPDX-License-Identifier: Apache-2.0

package rpc

// Verbs that change the interfaces of a run.
const (
	// AddLink adds an interface. For TypeFD, the question carries its
	// descriptor.
	AddLink = Verb[LinkSpec, LinkAdded]("link-add")
	// DelLink removes an interface and everything on the host that was
	// created for it.
	DelLink = Verb[LinkName, struct{}]("link-del")
)

// LinkSpec is an interface in the form of --if.
type LinkSpec struct {
	Spec string `json:"spec"`
}

// LinkAdded is the answer to AddLink.
type LinkAdded struct {
	Name  string   `json:"name"` // interface name in the stack
	Notes []string `json:"notes,omitempty"`
}

// LinkName selects an interface by its name in the stack.
type LinkName struct {
	Name string `json:"name"`
}
