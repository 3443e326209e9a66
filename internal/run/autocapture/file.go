// SPDX-License-Identifier: Apache-2.0

package autocapture

import (
	"os"
	"path/filepath"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/pkg/capture"
)

// captureFile is the file of a recording. It implements capture.Handler.
type captureFile struct {
	*capture.Files // nil until begin is called

	path string // absolute, so that it is valid in other directories
	file *os.File
}

// createCapture creates the file.
func createCapture(path string, private bool) (*captureFile, error) {
	file, err := capture.Create(path, private)
	if err != nil {
		return nil, &exit.UsageError{Err: errno.Errno(err)}
	}
	f := &captureFile{path: path, file: file}
	if abs, err := filepath.Abs(path); err == nil {
		f.path = abs
	}
	return f, nil
}

// begin writes the file header. Each batch is written before the next one is
// requested, so the file is readable even if this process dies. If a write
// fails, the file is truncated to its complete blocks.
func (f *captureFile) begin() (err error) {
	f.Files, err = capture.NewFiles(capture.FileOptions{Path: "-", Out: f.file, Application: "lklrun --capture", PerBatch: true})
	return err
}

// finish completes and closes the file if good is set. Otherwise it does nothing.
func (f *captureFile) finish(good bool) error {
	if !good {
		return nil
	}
	return f.Close()
}
