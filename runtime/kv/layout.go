package kv

// PageTokens is the number of tokens in a page; even, so that a ratio-2 group never straddles pages.
const PageTokens = 64

// Owner places one owner layer's rows in a page.
type Owner struct {
	Layer    int
	Ratio    int // tokens per row
	PageRows int // rows of this owner in a page
	// Plane offsets in bytes from the page's start.
	MainCodes, MainScales, IndexCodes, IndexScales int
}

// Layout is the byte layout of a page.
type Layout struct {
	HeadDim, IndexDim int
	Owners            []Owner
	PageBytes         int
}

// NewLayout lays out a page for the owners (layer, ratio) in order: FP4 main rows of headDim channels with a scale
// byte per 16, FP4 index keys of indexDim channels with a scale byte per 32.
func NewLayout(headDim, indexDim int, layers, ratios []int) Layout {
	l := Layout{HeadDim: headDim, IndexDim: indexDim}
	plane := func(bytes int) int {
		at := l.PageBytes
		l.PageBytes += (bytes + 15) &^ 15
		return at
	}
	for i, layer := range layers {
		rows := PageTokens / ratios[i]
		l.Owners = append(l.Owners, Owner{
			Layer: layer, Ratio: ratios[i], PageRows: rows,
			MainCodes:   plane(rows * headDim / 2),
			MainScales:  plane(rows * headDim / 16),
			IndexCodes:  plane(rows * indexDim / 2),
			IndexScales: plane(rows * indexDim / 32),
		})
	}
	return l
}

// Owner finds a layer's placement.
func (l *Layout) Owner(layer int) (Owner, bool) {
	for _, o := range l.Owners {
		if o.Layer == layer {
			return o, true
		}
	}
	return Owner{}, false
}
