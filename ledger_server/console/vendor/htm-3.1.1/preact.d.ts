/** What the console takes of htm's build with Preact. */
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(what: unknown, into: Element): void;
export function useState<T>(first: T): [T, (next: T) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(first: T): { current: T };
export function useReducer<S, A>(reducer: (state: S, action: A) => S, first: S): [S, (action: A) => void];
