// SPDX-License-Identifier: Apache-2.0

// Package link holds the interfaces of a stack and their drivers: one folder
// for each interface type, registered in internal/link/all.
//
// Each step of a run calls a driver once:
//
//	facts   Look      examine the host, change nothing
//	plan    Plan      complete the plan of the interface: pure
//	print   Describe  the plan in words
//	launch  Open      open the host's end, with an undo for each change
//	doctor  Check     what the host offers for the type
package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"

	"github.com/lklrun/lklrun/internal/base/runas"
	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/pkg/config"
)

// Driver is an interface type. F holds its facts about the host, and P the part
// of the plan that only this type has. Both must be data that JSON can
// represent.
type Driver[F, P any] interface {
	// Look examines the host for an interface. It also returns an error,
	// with the remedy, for each condition that would make the run fail
	// later. It changes nothing.
	Look(ctx context.Context, q *Query) (F, error)

	// Plan completes r.Link. Its result depends only on the arguments.
	Plan(r *Request, f F) (P, error)

	// Describe explains the planned interface.
	Describe(l *Link, p P) Description

	// Open creates or opens the host's end of the interface. It passes the
	// undo of each change to env.Journal before it makes the change. After
	// an error, only the changes in the journal remain.
	Open(ctx context.Context, l *Link, p P, env Env) (End, error)

	// Check reports what the host offers for this type.
	Check(ctx context.Context) []Finding
}

// Query is the input of Look.
type Query struct {
	Interface *config.Interface
	Passed    *os.File // a descriptor that was passed to lklrun; nil: it is inherited, or there is none

	// Publish are the ports of the host that no interface serves yet. A
	// driver that can serve them checks them and sets this to nil.
	Publish []config.Publish

	MayShare bool // set by Look: the interface may use addresses of the host

	// Dry means that the run will only be planned. Lacks are then the missing
	// rights, which are no errors.
	Dry           bool
	MissingRights []error
}

// MissingRight returns err, unless the run is dry and err is only about a missing right.
func (q *Query) MissingRight(err error) error {
	if q.Dry && errors.As(err, new(*netdev.RightsError)) {
		q.MissingRights = append(q.MissingRights, err)
		return nil
	}
	return err
}

// Request contains the link that Plan completes, and the data it needs for
// that.
type Request struct {
	Interface *config.Interface
	Link      *Link  // with the values of the configuration
	Machine   string // identifies this machine
	Others    []Link // the plan's other interfaces

	// Publish are the ports of the host that no interface serves yet. A
	// driver that can serve them takes them and sets this to nil.
	Publish []config.Publish

	// Allow are the only destinations that the run may reach; empty: all, unless there is a
	// policy (Egress). The run then has only interfaces that apply this.
	Allow []config.Allow
	// Egress is config.Run.Egress.
	Egress string
	// EgressLog is config.Run.EgressLog.
	EgressLog string
	// AllowHosts are the names of the program's /etc/hosts that Allow names.
	AllowHosts []config.HostName
	// Proxy is the URL of the only way to the network; empty: there is none. The run then
	// has only interfaces that apply this.
	Proxy string

	Notes []string // printed once at the start
	Hints []string // the same, on a terminal
}

// Note adds a note for the user.
func (r *Request) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Description explains a planned interface.
type Description struct {
	Summary []string // the first lines about the interface in a printed plan
	Notes   []string // the last lines about it, before those about MPTCP
	Step    string   // the step that opens the host's end of the interface
	Undo    string
}

// Env connects an open driver to its run.
type Env struct {
	Journal func(netdev.Undo) error // records an undo
	Passed  *os.File                // as in Query
	Dir     string                  // the run directory
	Log     *slog.Logger
	Notify  func(string) // prints a line for the user
	Note    func(string) // the same, unless the user wants no notes
	Library string       // path of the stack library; empty: none
	Spin    int          // microseconds for which the stack polls before it sleeps
	User    *runas.User  // of the target; nil: that of this process

	// UndosOfOthers lists the undos of one kind of other runs.
	UndosOfOthers func(op string) ([]netdev.Undo, error)

	// Share reserves the run's ports at the addresses that a link shares
	// with the host, and returns the filter for their packets. Guard then
	// hides these packets from the host until its result end is called.
	Share func(ctx context.Context, l *Link) (filter []bpf.RawInstruction, err error)
	Guard func(ctx context.Context, l *Link) (end func(), err error)
}

// Finding is something that the host offers, or does not.
type Finding struct {
	Subject string
	Limited bool // runs work, but with limitations
	Text    string
}

// Found returns a finding: text, or err if there is one. prefix precedes the
// error.
func Found(subject, text, prefix string, err error) Finding {
	if err != nil {
		return Finding{subject, true, prefix + err.Error()}
	}
	return Finding{Subject: subject, Text: text}
}

// FlagError is an error whose text names the flag to change. Other errors of
// Look and Plan are about the interface's own flag.
type FlagError struct{ Err error }

// Error names the flag.
func (e *FlagError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *FlagError) Unwrap() error { return e.Err }

// Explain adds the interface's flag to an error of Look or Plan.
func Explain(i *config.Interface, err error) error {
	var flag *FlagError
	if err == nil || errors.As(err, &flag) {
		return err
	}
	return fmt.Errorf("--if %q: %w", i.String(), err)
}

// driver is a Driver without its type parameters.
type driver interface {
	look(ctx context.Context, q *Query) (any, error)
	plan(r *Request, facts any) (any, error)
	describe(l *Link) Description
	open(ctx context.Context, l *Link, env Env) (End, error)
	check(ctx context.Context) []Finding
	part(text []byte) (any, error)
}

// drivers maps the names of types to their drivers.
var drivers = map[string]driver{}

// Register adds an interface type and its driver.
func Register[F, P any](t config.Type, d Driver[F, P]) {
	config.RegisterType(t)
	drivers[t.Name] = typed[F, P]{d}
}

// typed converts between a driver's own types and any.
type typed[F, P any] struct{ d Driver[F, P] }

func (t typed[F, P]) look(ctx context.Context, q *Query) (any, error) { return t.d.Look(ctx, q) }

func (t typed[F, P]) plan(r *Request, facts any) (any, error) {
	f, _ := facts.(F) // without facts, the zero value
	p, err := t.d.Plan(r, f)
	if unsafe.Sizeof(p) == 0 {
		return nil, err
	}
	return p, err
}

func (t typed[F, P]) describe(l *Link) Description {
	p, _ := l.TypePlan.(P)
	return t.d.Describe(l, p)
}

func (t typed[F, P]) open(ctx context.Context, l *Link, env Env) (End, error) {
	p, _ := l.TypePlan.(P)
	return t.d.Open(ctx, l, p, env)
}

func (t typed[F, P]) check(ctx context.Context) []Finding { return t.d.Check(ctx) }

func (t typed[F, P]) part(text []byte) (any, error) {
	var p P
	err := json.Unmarshal(text, &p)
	return p, err
}

func of(typ string) (driver, error) {
	if d := drivers[typ]; d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("unknown interface type %q", typ)
}

// Look has the driver examine the host for an interface.
func Look(ctx context.Context, q *Query) (facts any, err error) {
	d, err := of(q.Interface.Type)
	if err != nil {
		return nil, err
	}
	return d.look(ctx, q)
}

// Plan has the driver complete r.Link.
func Plan(r *Request, facts any) error {
	d, err := of(r.Link.Type)
	if err == nil {
		r.Link.TypePlan, err = d.plan(r, facts)
	}
	return err
}

// Describe explains a planned interface.
func Describe(l *Link) Description {
	d, err := of(l.Type)
	if err != nil {
		return Description{Summary: []string{l.Type}}
	}
	return d.describe(l)
}

// Open has the driver open the host's end of an interface. After an error, only
// the changes in the journal remain.
func Open(ctx context.Context, l *Link, env Env) (End, error) {
	d, err := of(l.Type)
	if err != nil {
		return End{}, err
	}
	end, err := d.open(ctx, l, env)
	if err == nil {
		if err = end.offload(l); err != nil {
			end.Release()
		}
	}
	if err != nil {
		return End{}, err
	}
	return end, nil
}

// Check reports what the host offers for each type.
func Check(ctx context.Context) []Finding {
	var all []Finding
	for _, name := range config.TypeNames() {
		if d := drivers[name]; d != nil {
			all = append(all, d.check(ctx)...)
		}
	}
	return all
}
