package kv

import "fmt"

// Page numbers a page of the pool.
type Page int32

// Pool hands out pages and counts references to them; a page is free again when nobody refers to it.
type Pool struct {
	refs   []int32
	cached []bool // a Tree has one of the references
	free   []Page // a stack, lowest page on top at the start

	idle, shared int
}

// NewPool makes a pool of n pages, all free.
func NewPool(n int) *Pool {
	p := &Pool{refs: make([]int32, n), cached: make([]bool, n), free: make([]Page, n)}
	for i := range p.free {
		p.free[i] = Page(n - 1 - i)
	}
	return p
}

// Pages is the size of the pool.
func (p *Pool) Pages() int { return len(p.refs) }

// Free is the number of pages that nobody holds.
func (p *Pool) Free() int { return len(p.free) }

// Idle is the number of pages that only a Tree holds.
func (p *Pool) Idle() int { return p.idle }

// Shared is the number of pages that two or more sequences hold.
func (p *Pool) Shared() int { return p.shared }

// FullError says how many pages were missing.
type FullError struct{ Want, Free int }

func (e *FullError) Error() string {
	return fmt.Sprintf("KV cache is full: %d pages of %d tokens wanted, %d free", e.Want, PageTokens, e.Free)
}

// Take reserves n pages with one reference each, all or none.
func (p *Pool) Take(n int) ([]Page, error) {
	if n > len(p.free) {
		return nil, &FullError{Want: n, Free: len(p.free)}
	}
	cut := len(p.free) - n
	out := make([]Page, n)
	for i := range out {
		out[i] = p.free[len(p.free)-1-i]
		p.refs[out[i]] = 1
	}
	p.free = p.free[:cut]
	return out, nil
}

// Hold adds a reference to a page in use.
func (p *Pool) Hold(page Page) error {
	if p.refs[page] == 0 {
		return fmt.Errorf("hold KV page %d: it is free", page)
	}
	p.set(page, p.refs[page]+1, p.cached[page])
	return nil
}

// Release drops one reference to each page.
func (p *Pool) Release(pages []Page) error {
	for _, page := range pages {
		if p.refs[page] == 0 {
			return fmt.Errorf("release KV page %d: it is free", page)
		}
		p.set(page, p.refs[page]-1, p.cached[page])
		if p.refs[page] == 0 {
			p.free = append(p.free, page)
		}
	}
	return nil
}

// set changes a page's references, and whether one of them is a Tree's.
func (p *Pool) set(page Page, refs int32, cached bool) {
	count := func(by int) {
		users := p.refs[page]
		if p.cached[page] {
			users--
		}
		switch {
		case users > 1:
			p.shared += by
		case users == 0 && p.cached[page]:
			p.idle += by
		}
	}
	count(-1)
	p.refs[page], p.cached[page] = refs, cached
	count(1)
}

// cache and uncache take and drop a Tree's reference to a page in use; a page has at most one.
func (p *Pool) cache(page Page) { p.set(page, p.refs[page]+1, true) }

func (p *Pool) uncache(page Page) {
	p.set(page, p.refs[page]-1, false)
	if p.refs[page] == 0 {
		p.free = append(p.free, page)
	}
}

// PagesFor is the number of pages that tokens need.
func PagesFor(tokens int) int { return (tokens + PageTokens - 1) / PageTokens }
