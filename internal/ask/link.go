// SPDX-License-Identifier: Apache-2.0

package ask

// The interfaces of a run that goes on.
const (
	// AddLink adds one; for TypeFD its descriptor comes with the question.
	AddLink = Verb[LinkSpec, LinkAdded]("link-add")
	// DelLink takes one away, and what was made for it on the host.
	DelLink = Verb[LinkName, struct{}]("link-del")
)

// LinkSpec is an interface as --if has it.
type LinkSpec struct {
	Spec string `json:"spec"`
}

// LinkAdded is what became of it.
type LinkAdded struct {
	Name  string   `json:"name"` // in the stack
	Notes []string `json:"notes,omitempty"`
}

// LinkName names an interface of the stack.
type LinkName struct {
	Name string `json:"name"`
}
