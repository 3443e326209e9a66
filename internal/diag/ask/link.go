// SPDX-License-Identifier: Apache-2.0

package ask

// Changes of the interfaces of a run.
const (
	// AddLink adds one; for TypeFD its descriptor comes with the question.
	AddLink = Verb[LinkSpec, LinkAdded]("link-add")
	// DelLink removes one, and what was made for it on the host.
	DelLink = Verb[LinkName, struct{}]("link-del")
)

// LinkSpec is an interface in the form of --if.
type LinkSpec struct {
	Spec string `json:"spec"`
}

// LinkAdded is the result.
type LinkAdded struct {
	Name  string   `json:"name"` // in the stack
	Notes []string `json:"notes,omitempty"`
}

// LinkName names an interface of the stack.
type LinkName struct {
	Name string `json:"name"`
}
